# A transaction database: readers with think time, asynchronous writers of blocks, and a log writer.
set $dir=/tmp
set $eventrate=0
set $iosize=2k
set $nthreads=20
set $ndbwriters=10
set $usermode=200000
set $filesize=10m
set $memperthread=1m
set $workingset=0
set $logfilesize=10m
set $nfiles=10
set $nlogfiles=1
eventgen rate=$eventrate
define fileset name=datafiles,path=$dir,size=$filesize,entries=$nfiles,dirwidth=1024,prealloc=100
define fileset name=logfile,path=$dir,size=$logfilesize,entries=$nlogfiles,dirwidth=1024,prealloc=100
define process name=lgwr1,instances=1 {
  thread name=lgwr1,memsize=$memperthread,useism {
    flowop aiowrite name=logwrite1,filesetname=logfile,iosize=256k,workingset=1m,random,directio,dsync
    flowop aiowait name=logwait1
    flowop semblock name=logblock1,value=3200,highwater=1000
  }
}
define process name=dbwr1,instances=$ndbwriters {
  thread name=dbwr1,memsize=$memperthread,useism {
    flowop aiowrite name=blockwrite1,filesetname=datafiles,iosize=$iosize,workingset=$workingset,random,
      iters=100,opennext
    flowop hog name=writerhog1,value=10000
    flowop semblock name=writerblock1,value=1000,highwater=2000
    flowop aiowait name=writerwait1
  }
}
define process name=shadow1,instances=1 {
  thread name=shadow1,memsize=$memperthread,instances=$nthreads,useism {
    flowop read name=shadowread1,filesetname=datafiles,iosize=$iosize,workingset=$workingset,random,opennext
    flowop hog name=shadowhog1,value=$usermode
    flowop sempost name=wakelog1,value=1,target=logblock1,blocking
    flowop sempost name=wakewriters1,value=1,target=writerblock1,blocking
    flowop eventlimit name=limit1
  }
}
run 60
