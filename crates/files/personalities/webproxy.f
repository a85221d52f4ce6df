# A caching web proxy: one object is replaced for five that are read; eventgen limits the rate.
set $dir=/tmp
set $nfiles=10000
set $meandirwidth=1000000
set $meanfilesize=16k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=100
set $iosize=1m
set $meanappendsize=16k
set $eventrate=0
eventgen rate=$eventrate
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=80
define process name=proxy1,instances=1 {
  thread name=worker1,memsize=10m,instances=$nthreads {
    flowop deletefile name=evict1,filesetname=bigfileset
    flowop createfile name=fetch1,filesetname=bigfileset,fd=1
    flowop appendfilerand name=fill1,fd=1,iosize=$meanappendsize
    flowop closefile name=close0,fd=1
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop readwholefile name=read1,fd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
    flowop openfile name=open2,filesetname=bigfileset,fd=1
    flowop readwholefile name=read2,fd=1,iosize=$iosize
    flowop closefile name=close2,fd=1
    flowop openfile name=open3,filesetname=bigfileset,fd=1
    flowop readwholefile name=read3,fd=1,iosize=$iosize
    flowop closefile name=close3,fd=1
    flowop openfile name=open4,filesetname=bigfileset,fd=1
    flowop readwholefile name=read4,fd=1,iosize=$iosize
    flowop closefile name=close4,fd=1
    flowop openfile name=open5,filesetname=bigfileset,fd=1
    flowop readwholefile name=read5,fd=1,iosize=$iosize
    flowop closefile name=close5,fd=1
    flowop opslimit name=limit1
  }
}
run 60
