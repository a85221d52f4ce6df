# Writes a file in pieces whose sizes have a table of shares, and ends after 1 GiB.
set mode quit firstdone
set $dir=/tmp
set $nthreads=1
set $iosize=randvar(type=tabular,min=1k,round=512,randtable={{50,1k,4k},{30,4k,16k},{20,16k,64k}})
set $filesize=0
set $count=1g
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc=100
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop appendfile name=write1,filesetname=bigfileset,iosize=$iosize
    flowop finishonbytes name=finish1,value=$count
  }
}
run
