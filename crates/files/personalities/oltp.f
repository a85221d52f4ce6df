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
define process name=lgwr,instances=1 {
  thread name=lgwr,memsize=$memperthread,useism {
    flowop aiowrite name=logwrite,filesetname=logfile,iosize=256k,workingset=1m,random,directio,dsync
    flowop aiowait name=logwait
    flowop semblock name=logblock,value=3200,highwater=1000
  }
}
define process name=dbwr,instances=$ndbwriters {
  thread name=dbwr,memsize=$memperthread,useism {
    flowop aiowrite name=blockwrite,filesetname=datafiles,iosize=$iosize,workingset=$workingset,random,
      iters=100,opennext
    flowop hog name=writerhog,value=10000
    flowop semblock name=writerblock,value=1000,highwater=2000
    flowop aiowait name=writerwait
  }
}
define process name=shadow,instances=1 {
  thread name=shadow,memsize=$memperthread,instances=$nthreads,useism {
    flowop read name=shadowread,filesetname=datafiles,iosize=$iosize,workingset=$workingset,random,opennext
    flowop hog name=shadowhog,value=$usermode
    flowop sempost name=wakelog,value=1,target=logblock,blocking
    flowop sempost name=wakewriters,value=1,target=writerblock,blocking
    flowop eventlimit name=limit
  }
}
run 60
